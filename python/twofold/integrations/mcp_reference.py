"""The profile `reference`: the nine tools of the official reference memory server, on a Twofold store."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from twofold.core import __version__
from twofold.errors import NotFound, TwofoldError
from twofold.integrations.mcp_face import Answer, Face, Resource, Seat, Tool, pretty, text
from twofold.integrations.reference_graph import GraphStore

GRAPH_URI: Final = "memory://knowledge-graph"


class _Shape(BaseModel):
    # As the reference server: unknown fields are dropped, values are not converted.
    model_config = ConfigDict(strict=True, populate_by_name=True, serialize_by_alias=True)


class Entity(_Shape):
    """An entity with its observations."""

    name: Annotated[str, Field(description="The name of the entity")]
    entityType: Annotated[str, Field(description="The type of the entity")]
    observations: Annotated[
        list[str], Field(description="An array of observation contents associated with the entity")
    ]


class Relation(_Shape):
    """A directed relation between two entities."""

    from_: Annotated[str, Field(alias="from", description="The name of the entity where the relation starts")]
    to: Annotated[str, Field(description="The name of the entity where the relation ends")]
    relationType: Annotated[str, Field(description="The type of the relation")]


class Addition(_Shape):
    """New observations of one entity."""

    entityName: Annotated[str, Field(description="The name of the entity to add the observations to")]
    contents: Annotated[list[str], Field(description="An array of observation contents to add")]


class Deletion(_Shape):
    """Observations to delete from one entity."""

    entityName: Annotated[str, Field(description="The name of the entity containing the observations")]
    observations: Annotated[list[str], Field(description="An array of observations to delete")]


class Added(_Shape):
    """What was new of one addition."""

    entityName: str
    addedObservations: list[str]


class Entities(_Shape):
    """Arguments and result of `create_entities`."""

    entities: list[Entity]


class Relations(_Shape):
    """Arguments and result of `create_relations`."""

    relations: list[Relation]


class DeletedRelations(_Shape):
    """Arguments of `delete_relations`."""

    relations: Annotated[list[Relation], Field(description="An array of relations to delete")]


class Additions(_Shape):
    """Arguments of `add_observations`."""

    observations: list[Addition]


class Results(_Shape):
    """Result of `add_observations`."""

    results: list[Added]


class Names(_Shape):
    """Arguments of `delete_entities`."""

    entityNames: Annotated[list[str], Field(description="An array of entity names to delete")]


class Deletions(_Shape):
    """Arguments of `delete_observations`."""

    deletions: list[Deletion]


class Nothing(_Shape):
    """No arguments."""


class Query(_Shape):
    """Arguments of `search_nodes`."""

    query: Annotated[
        str,
        Field(description="The search query to match against entity names, types, and observation content"),
    ]


class Opened(_Shape):
    """Arguments of `open_nodes`."""

    names: Annotated[list[str], Field(description="An array of entity names to retrieve")]


class GraphOut(_Shape):
    """Entities and relations."""

    entities: list[Entity]
    relations: list[Relation]


class Success(_Shape):
    """Result of the deletions."""

    success: bool
    message: str


def _store(seat: Seat) -> GraphStore:
    return GraphStore(seat.mem)


def _create_entities(seat: Seat, args: Entities) -> Answer:
    made = _store(seat).create_entities([e.model_dump() for e in args.entities])  # type: ignore[misc]
    return Answer([text(pretty(made))], {"entities": made})


def _create_relations(seat: Seat, args: Relations) -> Answer:
    made = _store(seat).create_relations([r.model_dump(by_alias=True) for r in args.relations])  # type: ignore[misc]
    return Answer([text(pretty(made))], {"relations": made})


def _add_observations(seat: Seat, args: Additions) -> Answer:
    made = _store(seat).add_observations([(a.entityName, a.contents) for a in args.observations])
    results = [{"entityName": name, "addedObservations": new} for name, new in made]
    return Answer([text(pretty(results))], {"results": results})


def _deleted(what: str) -> Answer:
    message = f"{what} deleted successfully"
    return Answer([text(message)], {"success": True, "message": message})


def _delete_entities(seat: Seat, args: Names) -> Answer:
    _store(seat).delete_entities(args.entityNames)
    return _deleted("Entities")


def _delete_observations(seat: Seat, args: Deletions) -> Answer:
    _store(seat).delete_observations([(d.entityName, d.observations) for d in args.deletions])
    return _deleted("Observations")


def _delete_relations(seat: Seat, args: DeletedRelations) -> Answer:
    _store(seat).delete_relations([r.model_dump(by_alias=True) for r in args.relations])  # type: ignore[misc]
    return _deleted("Relations")


def _shown(graph: Any) -> Answer:
    return Answer([text(pretty(graph))], dict(graph))


def _read_graph(seat: Seat, _: Nothing) -> Answer:
    return _shown(_store(seat).read())


def _search_nodes(seat: Seat, args: Query) -> Answer:
    return _shown(_store(seat).search(args.query))


def _open_nodes(seat: Seat, args: Opened) -> Answer:
    return _shown(_store(seat).open(args.names))


def _failed(error: Exception) -> Answer:
    # The reference server's text is the bare message; only errors it does not know carry a name.
    if isinstance(error, NotFound) or not isinstance(error, TwofoldError):
        return Answer([text(str(error))], None, error=True)
    return Answer([text(f"{type(error).__name__}: {error}")], None, error=True)


_WRITES: Final[dict[str, Any]] = {"reads": False, "repeats": False}
_DELETES: Final[dict[str, Any]] = {"reads": False, "destroys": True}

TOOLS: Final = (
    Tool("create_entities", "Create Entities", "Create multiple new entities in the knowledge graph",
         Entities, _create_entities, Entities, **_WRITES),
    Tool("create_relations", "Create Relations",
         "Create multiple new relations between entities in the knowledge graph. Relations should be in active voice",
         Relations, _create_relations, Relations, **_WRITES),
    Tool("add_observations", "Add Observations",
         "Add new observations to existing entities in the knowledge graph",
         Additions, _add_observations, Results, **_WRITES),
    Tool("delete_entities", "Delete Entities",
         "Delete multiple entities and their associated relations from the knowledge graph",
         Names, _delete_entities, Success, **_DELETES),
    Tool("delete_observations", "Delete Observations",
         "Delete specific observations from entities in the knowledge graph",
         Deletions, _delete_observations, Success, **_DELETES),
    Tool("delete_relations", "Delete Relations", "Delete multiple relations from the knowledge graph",
         DeletedRelations, _delete_relations, Success, **_DELETES),
    Tool("read_graph", "Read Graph", "Read the entire knowledge graph", Nothing, _read_graph, GraphOut),
    Tool("search_nodes", "Search Nodes", "Search for nodes in the knowledge graph based on a query",
         Query, _search_nodes, GraphOut),
    Tool("open_nodes", "Open Nodes", "Open specific nodes in the knowledge graph by their names",
         Opened, _open_nodes, GraphOut),
)  # fmt: skip


def _resources(_: Seat) -> list[Resource]:
    return [
        Resource(
            GRAPH_URI,
            "knowledge-graph",
            "Knowledge Graph",
            "The full knowledge graph with all entities and relations",
        )
    ]


def _read(seat: Seat, uri: str) -> list[dict[str, Any]]:
    if uri != GRAPH_URI:
        raise NotFound(f"there is no resource {uri}; there is {GRAPH_URI}")
    return [{"uri": uri, "mimeType": "application/json", "text": pretty(_store(seat).read())}]


def face(*, read_only: bool = False) -> Face:
    """The profile; read-only leaves out the tools that write."""
    return Face(
        "memory-server",
        "A knowledge graph of entities, their observations and relations.",
        [t for t in TOOLS if t.reads or not read_only],
        resources=_resources,
        read=_read,
        failed=_failed,
        version=__version__,
    )
