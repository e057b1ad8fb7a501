"""What job queues do when something dies: the same job, the same misfortunes, each queue by a small adapter.

    adapter     what an adapter is: a worker, a client, and the job
    <name>_jobs one queue
    playing     a queue on a server of its own, to be hurt
    observing   the misfortunes, and what is seen
    comparing   all of it for several queues, as a table and as JSON

    python -m workers.benching.crash --queues evalbus,docket --json crash.json

The libraries come with the dependency group `bench`. One that is not installed, or does not run, is named with its
error.
"""
