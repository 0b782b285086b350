"""Plans from measurements that were planned with before, within other limits or on another network."""
