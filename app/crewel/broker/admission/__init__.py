"""Who may do what, and how much of it: policy and authorisers, the token of operators, and limits."""
