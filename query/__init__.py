"""What is asked: SQL, plans, promising sets, operators. This floor holds no code yet."""
