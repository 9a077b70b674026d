"""What happened, asked of the streams that the server writes: a data pipeline on Spark. The server does not need it."""
