variable "region" {
  type    = string
  default = "eu-central-1"
}

variable "name" {
  type    = string
  default = "twofold"
}

variable "image" {
  type        = string
  description = "The container image, by digest."
}

variable "repository_arn" {
  type        = string
  description = "The ECR repository that the image is in."
}

variable "certificate_arn" {
  type        = string
  description = "The ACM certificate of the name clients use."
}

variable "client_cidrs" {
  type        = list(string)
  description = "Private address ranges that clients come from. None by default: nobody can connect."
  default     = []

  validation {
    condition     = !contains(var.client_cidrs, "0.0.0.0/0")
    error_message = "The service is not for the whole world; name the ranges of the clients."
  }
}

variable "cidr" {
  type    = string
  default = "10.42.0.0/20"
}

variable "copies" {
  type    = number
  default = 2
}

variable "cpu" {
  type    = number
  default = 1024
}

variable "memory" {
  type    = number
  default = 4096
}

variable "database_class" {
  type    = string
  default = "db.t4g.medium"
}

variable "database_gb" {
  type    = number
  default = 50
}

variable "multi_az" {
  type    = bool
  default = true
}

variable "protect" {
  type        = bool
  description = "Keep the database and the balancer from being deleted, and take a last snapshot."
  default     = true
}
