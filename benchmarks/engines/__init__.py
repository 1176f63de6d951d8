"""One pair of models, several engines: do they commit, propose, decide and tap the same? See RESULTS.md."""
