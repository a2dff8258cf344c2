"""What other frameworks call: each file is for one of them, and needs it."""
