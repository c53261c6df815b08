"""Parsers of a user's own, for the tests."""


class Shouting:
    """Reads text files, in capitals."""

    def parse(self, path, config):
        text = path.read_text("utf-8").upper()
        return {"text": text, "blocks": [{"kind": "heading", "start": 0, "end": 3}], "tables": ["<table></table>"]}


class Wrong:
    """Gives offsets outside of its text."""

    def parse(self, path, config):
        return {"text": "abc", "blocks": [{"kind": "heading", "start": 0, "end": 4}]}


class Silent:
    """Returns nothing."""

    def parse(self, path, config):
        return None


class Looping:
    """Never ends on files that ask for it."""

    def parse(self, path, config):
        text = path.read_text("utf-8")
        while text.startswith("loop"):
            pass
        return {"text": text}
