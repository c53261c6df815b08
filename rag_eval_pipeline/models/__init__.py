"""Load models once a process, checked by checksum."""
