"""Options of the commands as data: for the reference and for the forms of the site."""
