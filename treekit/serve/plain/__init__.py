"""Endpoints for people and for the page: rows as JSON objects, answers with their reasons."""
