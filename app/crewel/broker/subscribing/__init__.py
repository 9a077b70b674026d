"""What subscriptions ask for beyond a channel: filters, histories, groups."""
