"""The paper's experiments, on retail logs: Figures 9 to 16, with the paper's own measures."""
