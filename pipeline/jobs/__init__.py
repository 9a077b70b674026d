"""The jobs: where the session, the paths and the store come together."""
