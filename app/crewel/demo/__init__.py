"""The server halves of the demos that `http.demos` serves; applications like anybody's."""
