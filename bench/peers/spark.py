"""A local Spark with as many threads as the machine has cores, quiet, and without its web page."""

import os
import sys


def session():
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Memory: two thirds of the machine, since the rows are cached as JVM objects.
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 2 // 3 >> 30
    builder = SparkSession.builder.master("local[*]").appName("peer")
    for key, value in {
        "spark.driver.memory": f"{max(memory, 1)}g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(2 * os.cpu_count()),
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def vectors(spark, path):
    """A Parquet file as cached rows of `features` and, where there is one, `label`."""
    from pyspark.ml.feature import VectorAssembler

    table = spark.read.parquet(path)
    names = [name for name in table.columns if name != "label"]
    table = VectorAssembler(inputCols=names, outputCol="features").transform(table)
    return resident(table.drop(*names))


def resident(table):
    """Rows in memory before the clock starts, as the other contenders have them."""
    table = table.repartition(2 * os.cpu_count()).cache()
    table.count()
    return table
