"""The tables of a label party's book."""

from __future__ import annotations

TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE series (
    id INTEGER PRIMARY KEY, label TEXT NOT NULL, definition TEXT NOT NULL, coin TEXT NOT NULL, epoch INTEGER NOT NULL,
    UNIQUE (label, definition, coin, epoch));
CREATE TABLE mechanisms (id INTEGER PRIMARY KEY, series INTEGER NOT NULL, parameters TEXT NOT NULL,
    UNIQUE (series, parameters));
CREATE TABLE frozen (
    series INTEGER NOT NULL, key BLOB NOT NULL, unit BLOB NOT NULL, label INTEGER NOT NULL, mechanism INTEGER,
    PRIMARY KEY (series, key)) WITHOUT ROWID;
CREATE INDEX by_unit ON frozen (unit, mechanism);
CREATE TABLE releases (
    id INTEGER PRIMARY KEY, run_id TEXT UNIQUE NOT NULL, time TEXT NOT NULL, run TEXT NOT NULL, partners TEXT NOT NULL,
    mechanism INTEGER NOT NULL, rows INTEGER NOT NULL, auc REAL NOT NULL, odds REAL NOT NULL, seal TEXT NOT NULL);
CREATE TABLE released (
    release INTEGER NOT NULL, chunk INTEGER NOT NULL, keys BLOB NOT NULL, sent BLOB NOT NULL, groups BLOB,
    PRIMARY KEY (release, chunk));
"""
