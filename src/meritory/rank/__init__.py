"""Pure ranking maths: numpy and the project's types, nothing else."""
