"""What follows a plan while a model trains: one executor a kind of program, and what they share."""
