"""Tables of the parsing room: text, blocks and tables read from each document."""

from rag_eval_pipeline.warehouse.table import Table, integer, number, string, table


@table("parsed", "One row a document: the text that the parser read, or the status that says why there is none.")
class Parsed(Table):
    doc_id = string("Document", key=True)
    text = string("Parsed text, code points, LF line ends", privacy="source")
    status = string(
        "ok | empty | error | timeout | out_of_memory | crashed | encrypted | unsupported | too_large | missing"
    )
    error = string("Why the status is not ok, or a remark on what could not be read; without content", null=True)
    parser = string("Parser that read it")
    pages = integer("Pages, where the format has them", null=True)
    seconds = number("Time to parse", unit="s", null=True, volatile=True)
    html = string("The decoded page, for html documents: cleaning reads its main text", privacy="source", null=True)


@table("blocks", "One row a block of a parsed document, in reading order, as offsets into its parsed text.")
class Blocks(Table):
    doc_id = string("Document", key=True)
    block = integer("Number of the block, from 0", key=True)
    kind = string(
        "heading | paragraph | list_item | table | code | caption | boilerplate (page furniture, as far as the parser sees: "
        "navigation, cookie banners, running headers) | other"
    )
    level = integer("Level of a heading or nesting of a list item, from 1", null=True)
    page = integer("Page, from 1", null=True)
    start = integer("First code point in the parsed text")
    end = integer("One past the last code point")


@table("parsed_tables", "One row a table found in a document, as HTML.")
class ParsedTables(Table):
    doc_id = string("Document", key=True)
    table_no = integer("Number of the table, from 0", key=True)
    html = string("The table as HTML", privacy="source")
    page = integer("Page, from 1", null=True)
    start = integer("First code point of its text in the parsed text", null=True)
    end = integer("One past the last code point", null=True)
