"""The kinds of mixer that the experiment families compares: what each is made of at equal
parameters, what decides the claim, and what its page tells."""
