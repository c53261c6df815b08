"""What the console prints where it is no terminal."""

from rich.table import Table

from rag_eval_pipeline import cli


def test_a_table_in_a_pipe_is_as_wide_as_what_it_holds(capsys):
    table = Table(*(f"column {number}" for number in range(8)))
    table.add_row(*["0.1234 (0.1000–0.2000)"] * 8)
    cli.console.print(table)
    lines = capsys.readouterr().out.splitlines()
    assert any(line.count("0.1234 (0.1000–0.2000)") == 8 for line in lines)
    assert len(lines) == 5
    cli.console.print(Table("a", "b"))
    assert max(map(len, capsys.readouterr().out.splitlines())) < 20


def test_a_table_of_long_texts_is_folded_at_the_widest(capsys):
    table = Table("text")
    table.add_row("word " * 200)
    cli.console.print(table)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) == cli.WIDEST
    assert sum(line.count("word") for line in lines) == 200
