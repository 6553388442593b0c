"""What is planned: a paper or a question a folder."""
