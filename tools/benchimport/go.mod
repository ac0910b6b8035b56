module github.com/agenttrace/agenttrace/tools/benchimport

go 1.26
