"""Writers of other tools' files."""
