"""Rows as users have them: arrays, frames, texts and files, and what becomes of their columns and labels."""
