"""What subscriptions ask for beyond a channel: filters, histories, groups; and whether the policy grants it.

Uses topics, consumer groups and the queues of sessions. That the store has a subscription is the affair of `durability`.
"""
