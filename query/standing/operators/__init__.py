"""What a plan is made of: each step takes in what changed below it and tells what changes above."""
