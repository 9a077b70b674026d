"""Dead letters: told as they are made, sent again, thrown away."""
