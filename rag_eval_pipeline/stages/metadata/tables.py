"""Tables of the metadata room: what is said about a document, by whom, and what its text names."""

from rag_eval_pipeline.warehouse.table import Table, boolean, integer, string, table


@table(
    "document_metadata", "One row a document: its title, author and dates as found, and which source each came from."
)
class DocumentMetadata(Table):
    doc_id = string("Document", key=True)
    title = string("Title", privacy="masked", null=True)
    title_source = string("declared | front_matter | property | markup | heading | file_name", null=True)
    author = string("Authors as the source names them", privacy="source", null=True)
    author_source = string("Source of the author", null=True)
    published_at = string("ISO 8601", null=True)
    published_at_source = string("Source of the date of publication", null=True)
    modified_at = string("ISO 8601", null=True)
    modified_at_source = string("Source of the date of the last change", null=True)
    language = string("Declared language as the source writes it", null=True)
    language_source = string("Source of the language", null=True)
    status = string(
        "ok | none (no source says anything) | error | timeout | out_of_memory | crashed | the document's own status"
    )
    error = string("Why the status is not ok, without content", null=True)


@table("metadata_values", "One row a value that some source gives for a field of a document, believed or not.")
class MetadataValues(Table):
    doc_id = string("Document", key=True)
    field = string("title | author | published_at | modified_at | language", key=True)
    source = string("declared | front_matter | property | markup | heading | file_name", key=True)
    value = string("What the source says; dates as ISO 8601 where they can be read", privacy="source")
    valid = boolean("It can be what the field wants: a date that can be read, a title that is no file name")
    chosen = boolean("This source was believed")


@table("entities", "One row a named entity found, as offsets into the parsed text.")
class Entities(Table):
    doc_id = string("Document", key=True)
    start = integer("First code point in the parsed text", key=True)
    end = integer("One past the last code point", key=True)
    type = string("Entity type, as the model names it", key=True)


@table("relations", "One row a relation found between two things that a document names.")
class Relations(Table):
    doc_id = string("Document", key=True)
    relation_no = integer("Number of the relation, from 0", key=True)
    subject = string("Who or what", privacy="source")
    relation = string("What is said of both", privacy="source")
    object = string("To whom or what", privacy="source")
