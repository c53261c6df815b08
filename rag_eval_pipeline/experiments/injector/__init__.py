"""Make a faulty twin of a healthy version. Sites: `sites`; edits: `edits`; what follows from them: `chain`; files: `twin`."""
