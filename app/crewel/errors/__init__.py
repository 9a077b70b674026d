"""All errors in one place: the error tree and the texts of Bayeux replies (`tree`), and the dotted codes (`codes`).
May import nothing of the server, because everything imports it."""

from crewel.errors.codes import CODES as CODES
from crewel.errors.codes import KNOWN as KNOWN
from crewel.errors.codes import Category as Category
from crewel.errors.codes import ErrorCode as ErrorCode
from crewel.errors.codes import class_of as class_of
from crewel.errors.codes import coded as coded
from crewel.errors.codes import status_of as status_of
from crewel.errors.tree import DENIED_BY_NOT_GRANTING as DENIED_BY_NOT_GRANTING
from crewel.errors.tree import DENIED_BY_POLICY as DENIED_BY_POLICY
from crewel.errors.tree import REFUSED_HEADER as REFUSED_HEADER
from crewel.errors.tree import BayeuxCode as BayeuxCode
from crewel.errors.tree import Behind as Behind
from crewel.errors.tree import CrewelError as CrewelError
from crewel.errors.tree import Denied as Denied
from crewel.errors.tree import Fault as Fault
from crewel.errors.tree import Fenced as Fenced
from crewel.errors.tree import Flaw as Flaw
from crewel.errors.tree import IllegalArgument as IllegalArgument
from crewel.errors.tree import Limited as Limited
from crewel.errors.tree import LinkError as LinkError
from crewel.errors.tree import NodeFailed as NodeFailed
from crewel.errors.tree import NotReached as NotReached
from crewel.errors.tree import PayloadError as PayloadError
from crewel.errors.tree import Refused as Refused
from crewel.errors.tree import RemoteCallError as RemoteCallError
from crewel.errors.tree import ServiceError as ServiceError
from crewel.errors.tree import SettingsError as SettingsError
from crewel.errors.tree import StoreError as StoreError
from crewel.errors.tree import StoreFull as StoreFull
from crewel.errors.tree import StoreLost as StoreLost
from crewel.errors.tree import StoreTaken as StoreTaken
from crewel.errors.tree import StoreUnavailable as StoreUnavailable
from crewel.errors.tree import StoreUncertain as StoreUncertain
from crewel.errors.tree import WorkersFailed as WorkersFailed
from crewel.errors.tree import denied as denied
