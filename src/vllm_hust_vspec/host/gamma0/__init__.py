"""What the drafter does while gamma is 0: nothing at all, and one replay when speculation resumes."""
