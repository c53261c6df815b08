"""One room a stage of a RAG system, and the graph that lists them."""
