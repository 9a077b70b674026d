"""Settings with which Spark starts, and answers for few rows, in a fraction of the time and of the processor."""

from crewel.pipeline.java_startup import java_options

_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseParallelGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""The compiler that is quick itself. By default it keeps 48 MB of code, which some hundred tests fill: then it throws code
away, and compiles it again when it is needed. Java need not prove either that the classes of Spark are well formed."""

QUICK = {
    # One session serves some hundred tests.
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    # Frames of a few rows are read by what is there, sooner than a program for them is made and compiled.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # A plan that is made once costs less than one that each of its parts changes: there are no sizes to learn from.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.driver.extraJavaOptions": f"{java_options('ERROR')} {_JAVA}",
}
