"""The model that is trained: its parameters, who reads them when, and which models are refused."""
