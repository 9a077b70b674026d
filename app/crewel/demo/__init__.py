"""The server halves of the demos that `http.demos` serves. Like any application, they use what `crewel` exports."""
