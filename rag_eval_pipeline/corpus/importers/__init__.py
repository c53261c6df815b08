"""Importers: public sets, in their own formats, as corpus folders. `import_corpus` is the way in.

A format's reading belongs in its module; how a folder is written, named and swapped in belongs in `writer`.
"""

from rag_eval_pipeline.corpus.importers.registry import FORMATS, TRACES, Report, import_corpus, import_into
from rag_eval_pipeline.corpus.importers.writer import ImportFailedError

__all__ = ["FORMATS", "TRACES", "ImportFailedError", "Report", "import_corpus", "import_into"]
