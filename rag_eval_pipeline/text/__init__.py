"""Normalisation, tokenizers, sentences, analysers, critical tokens, alignment and offset maps."""
