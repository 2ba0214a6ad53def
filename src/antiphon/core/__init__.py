"""The words of Antiphon: ids, clock, errors, messages, generations, events. Standard library only, no I/O."""
