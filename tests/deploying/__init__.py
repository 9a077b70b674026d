"""Documented ways to deploy the server, with the programs that they need."""
