"""Tables, figures and an HTML page from the run directories of a study."""
