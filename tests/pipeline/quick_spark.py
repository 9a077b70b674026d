"""Settings with which Spark starts, and answers for few rows, in a fraction of the time and of the processor."""

from crewel.pipeline.java_startup import java_options

_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseParallelGC"
"""The compiler that is quick itself. By default it keeps 48 MB of code, which some hundred tests fill: then it throws code
away, and compiles it again when it is needed."""

QUICK = {
    "spark.sql.shuffle.partitions": "2",
    # Frames of a few rows are read by what is there, sooner than a program for them is made and compiled.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": f"{java_options('ERROR')} {_JAVA}",
}
