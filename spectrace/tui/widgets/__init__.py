"""One widget per file. A widget draws lines that it is given or asks for; it reads no trace."""
