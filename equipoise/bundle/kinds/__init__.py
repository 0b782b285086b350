"""Published models by kind of data: what each takes, answers and is evaluated by."""
