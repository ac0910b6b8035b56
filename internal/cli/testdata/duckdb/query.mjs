// Answers queries over exported tables: {"tables": directory, "queries": [SQL]} becomes a list of rows for each query.
import { DuckDBInstance } from "@duckdb/node-api";
import fs from "node:fs";

const { tables, queries } = JSON.parse(fs.readFileSync(0, "utf8"));
const db = await (await DuckDBInstance.create(":memory:")).connect();
for (const table of fs.readdirSync(tables)) {
  await db.run(`CREATE VIEW ${table} AS SELECT * FROM read_parquet('${tables}/${table}/*/*.parquet', hive_partitioning = true)`);
}
const answers = [];
for (const query of queries) {
  answers.push((await db.runAndReadAll(query)).getRowsJson());
}
console.log(JSON.stringify(answers));
