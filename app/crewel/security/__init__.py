"""Who may do what: the policy that decides for the whole server, and authorisers that channels carry."""
