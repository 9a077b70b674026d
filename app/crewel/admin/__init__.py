"""What operators see and do: one table of commands and one table of REST resources, and the faces of both."""
