"""The trained model: its parameters, their reads, and checks of models and optimisers."""
