"""Matrix factorisation of ratings: rank 16, 10 iterations of alternating least squares, ratings centred by their mean.

Usage: factorisation.py spark als RATINGS.csv TEST.csv. Prints one line of JSON; loading is not in `seconds`.
scikit-learn has no factorisation that leaves missing ratings out, so that Spark is the only peer.
"""

import json
import sys
import time

RANK, ITERATIONS, L2 = 16, 10, 0.05


def spark(train_path, test_path):
    import spark as local
    from pyspark.ml.recommendation import ALS
    from pyspark.sql import functions

    session = local.session()
    read = lambda path: session.read.csv(path, header=True, schema="user INT, item INT, rating FLOAT")
    mean = read(train_path).agg(functions.avg("rating")).first()[0]
    centred = lambda path: local.resident(read(path).withColumn("rating", functions.col("rating") - mean))
    train, test = centred(train_path), centred(test_path)
    learner = ALS(
        rank=RANK, maxIter=ITERATIONS, regParam=L2, seed=1, coldStartStrategy="nan",
        userCol="user", itemCol="item", ratingCol="rating",
    )
    start = time.perf_counter()
    model = learner.fit(train)
    model.userFactors.count(), model.itemFactors.count()
    seconds = time.perf_counter() - start

    def rmse(table):
        # An item or user that training never saw gets the mean.
        guess = functions.nanvl(functions.col("prediction"), functions.lit(0.0))
        error = functions.avg((guess - functions.col("rating")) ** 2)
        return float(model.transform(table).agg(error).first()[0]) ** 0.5

    return seconds, rmse(train), rmse(test), session.version


if __name__ == "__main__":
    seconds, train, test, version = {"spark": spark}[sys.argv[1]](*sys.argv[3:5])
    print(json.dumps({
        "version": version,
        "seconds": seconds,
        "metrics": {"rmse": train},
        "evaluation": {"rmse": test},
        "iterations": ITERATIONS,
    }))
