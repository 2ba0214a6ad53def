"""The SQL database behind the SQL drivers: tables, migrations, threads."""
