"""The options of a subscription beyond its channel (filters, histories, groups), and whether the policy grants them.

Uses topics, consumer groups and the queues of sessions. `durability` keeps subscriptions in the store.
"""
